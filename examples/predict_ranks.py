"""Predict the ranks of the three Hessians from the architecture alone: integers in, integers out, no torch."""

import hessmap as hm

network = hm.FullyConnected(widths=(64, 30, 20, 10))
prediction = hm.predict_ranks(network, loss="squared", input_rank=61)

for part in ("outer_product", "functional", "loss"):
    rank = getattr(prediction, part)
    print(f"{part:>13}: {rank.value:5d} of {prediction.num_parameters}, {rank.kind} ({rank.reference})")

# A wider network has more parameters, and a smaller share of them is curved.
for width in (10, 20, 40, 80, 160):
    wide = hm.FullyConnected(widths=(64, width, width, 10))
    share = hm.predict_ranks(wide, input_rank=61).loss.value / wide.num_parameters
    print(f"width {width:3d}: {share:6.1%} of {wide.num_parameters:6d} parameters")
