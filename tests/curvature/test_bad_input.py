"""What cannot be used is refused in one sentence that names the value and the remedy."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import hessmap as hm
from cases import chain
from hessmap.errors import InvalidInput, NotReproducible, TooLarge, UnknownName

INPUTS = torch.randn(10, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(10) % 3


def problem(model=None, loss="squared", inputs=INPUTS, targets=LABELS, **options):
    return hm.Problem(model or chain(4, 5, 3).double(), loss, inputs, targets, **options)


def with_value(tensor: Tensor, value: float) -> Tensor:
    spoiled = tensor.clone()
    spoiled[2] = value
    return spoiled


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_values_are_refused_by_name(value):
    with pytest.raises(InvalidInput, match="inputs must be finite; sample 2 has NaN or inf"):
        problem(inputs=with_value(INPUTS, value))
    with pytest.raises(InvalidInput, match="targets must be finite; sample 2"):
        problem(targets=with_value(torch.zeros(10, 3).double(), value))
    model = chain(4, 5, 3).double()
    model[2].weight.data[0, 0] = value
    with pytest.raises(InvalidInput, match=r"weights must be finite; parameter '2.weight' has NaN or inf"):
        problem(model)


def test_a_loss_that_is_not_finite_is_refused():
    with pytest.raises(InvalidInput, match="the loss must be finite; '<lambda>' gives NaN or inf"):
        problem(loss=lambda out, target: out.sum(1) * float("inf"))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInput, match="the inputs must fit the model; inputs of shape"):
        problem(inputs=INPUTS[:, :3])
    with pytest.raises(InvalidInput, match="same number of samples; there are 10 inputs and 9 targets"):
        problem(targets=LABELS[:9])
    with pytest.raises(InvalidInput, match="one value per output, 3 of them; each sample has 2"):
        problem(targets=torch.zeros(10, 2).double())
    with pytest.raises(InvalidInput, match=r"one label for every position.*\(2, 3\) per sample"):
        problem(nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, 3)).double())


def test_targets_out_of_range_are_refused():
    with pytest.raises(InvalidInput, match=r"labels must be in 0..2 .* sample 4 has label 3"):
        problem(loss="cross_entropy", targets=torch.tensor([0, 1, 2, 0, 3, 0, 0, 0, 0, 0]))
    with pytest.raises(InvalidInput, match=r"labels must be in 0..2"):
        problem(targets=LABELS - 1)
    with pytest.raises(InvalidInput, match="labels must be integers; got torch.float64"):
        problem(loss="cross_entropy", targets=LABELS.double())


def test_an_empty_data_set_is_refused():
    with pytest.raises(InvalidInput, match="at least one sample; it is empty"):
        problem(inputs=INPUTS[:0], targets=LABELS[:0])
    with pytest.raises(InvalidInput, match="at least one sample; it is empty"):
        problem(inputs=[], targets=None)


def test_a_model_without_free_parameters_is_refused():
    model = chain(4, 3).double().requires_grad_(False)
    with pytest.raises(InvalidInput, match="must have a parameter to differentiate; all are frozen"):
        problem(model)
    with pytest.raises(InvalidInput, match=r"model must be a torch.nn.Module; got function"):
        problem(lambda x: x)


def test_dropout_in_train_mode_is_refused_and_fine_in_eval_mode():
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 3)).double()
    with pytest.raises(InvalidInput, match=r"dropout must be off.*layer '1' is Dropout\(p=0.5\) in train mode"):
        problem(model)
    assert hm.loss_hessian(problem(model.eval())).to_dense().shape == (43, 43)


def test_a_random_model_is_refused():
    class Noisy(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs) + torch.randn(self.out_features, dtype=torch.float64)

    with pytest.raises(NotReproducible, match="two evaluations on the same samples disagree"):
        problem(Noisy(4, 3).double())


def test_a_model_whose_samples_see_each_other_is_refused():
    class Centred(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            outputs = super().forward(inputs)
            return outputs - outputs.mean(0)

    with pytest.raises(NotReproducible, match="the model must treat samples independently"):
        problem(Centred(4, 3).double())
    with pytest.raises(InvalidInput, match="batch norm must have running statistics"):
        problem(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)).double())


class Augmented(Dataset):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return INPUTS[index] + 0.1 * torch.randn(4, dtype=torch.float64), LABELS[index]


def test_loaders_that_lose_or_change_samples_are_refused():
    data = TensorDataset(INPUTS, LABELS)
    with pytest.raises(InvalidInput, match="drop_last=True drops 2 of 10 in batches of 4"):
        problem(inputs=DataLoader(data, batch_size=4, drop_last=True), targets=None)
    with pytest.raises(NotReproducible, match="different samples. Switch off augmentation"):
        problem(inputs=DataLoader(Augmented(), batch_size=4), targets=None)
    with pytest.raises(NotReproducible, match="gave 10 and 0 samples. A generator can be read only once"):
        problem(inputs=((INPUTS[i : i + 5], LABELS[i : i + 5]) for i in (0, 5)), targets=None)
    with pytest.raises(InvalidInput, match=r"must yield \(inputs, targets\) pairs of tensors; it gave a Tensor"):
        problem(inputs=[INPUTS], targets=None)


def test_loaders_may_shuffle_and_have_a_ragged_last_batch():
    model = chain(4, 5, 3).double()
    expected = hm.loss_hessian(hm.Problem(model, "squared", INPUTS, LABELS)).to_dense()
    data = TensorDataset(INPUTS, LABELS)
    for loader in (
        DataLoader(data, batch_size=3),
        DataLoader(data, batch_size=4, shuffle=True),
        DataLoader(data, batch_size=5, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(1)),
        [(INPUTS[:7], LABELS[:7]), (INPUTS[7:], LABELS[7:])],
    ):
        found = hm.loss_hessian(hm.Problem(model, "squared", loader)).to_dense()
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_weights_and_settings_are_checked():
    with pytest.raises(InvalidInput, match="weights must be finite, not negative"):
        problem(weights=torch.linspace(-1, 1, 10))
    with pytest.raises(InvalidInput, match="weights must be one per sample, 10 of them"):
        problem(weights=torch.ones(9))
    with pytest.raises(InvalidInput, match="l2 must be finite and not negative; got -1"):
        problem(l2=-1)
    with pytest.raises(InvalidInput, match="memory_budget must be at least 1 MiB; got 12"):
        problem(memory_budget=12)


def test_unknown_losses_are_answered_with_the_near_ones():
    with pytest.raises(UnknownName, match=r"loss must be one of squared, cross_entropy, log_cosh.*'cross_entropy'\?"):
        problem(loss="crossentropy")
    with pytest.raises(InvalidInput, match=r"must return one value per sample, shape \(10,\); it returned \(\)"):
        problem(loss=lambda out, target: out.sum())


def test_a_hessian_that_cannot_fit_is_refused_with_the_bytes_and_the_alternative():
    huge = problem(chain(4, 2000, 2000, 3, bias=False).double())
    with pytest.raises(TooLarge, match=r"4014000 parameters must fit.*it needs 117.* TiB. Use products \(H @ v\)"):
        hm.loss_hessian(huge).to_dense()


def test_a_vector_of_the_wrong_length_is_refused():
    with pytest.raises(InvalidInput, match=r"needs vectors with 43 entries; got shape \(42,\)"):
        hm.loss_hessian(problem()) @ torch.zeros(42).double()


def test_promotion_from_float32_is_said():
    made = problem(chain(4, 5, 3), inputs=INPUTS.float())
    assert "promoted from float32 to float64" in made.notes[0]
    assert any("inputs were promoted" in note for note in made.notes)
    assert hm.loss_hessian(made).to_dense().dtype == torch.float64
