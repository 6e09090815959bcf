"""Training: single steps by hand, whole runs, what stays untouched, and every refusal."""

import copy

import pytest
import torch
from torch import nn

import hessmap.training.objective as objective_module
from hessmap.datasets import Data, digits, gaussian, gaussian_mixture
from hessmap.errors import InvalidInput, UnknownName
from hessmap.networks import FullyConnected
from hessmap.records import Record
from hessmap.training import TrainingDiverged, train

MIXTURE = gaussian_mixture(60, 4, num_classes=3, separation=3.0)


def small(seed=0, **options):
    return FullyConnected((4, 5, 3), activation="tanh", **options).build(seed)


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def risk_gradient(model, loss, data):
    """The gradient of the mean loss, sample by sample."""
    total = torch.zeros_like(flat(model))
    for inputs, target in zip(data.inputs, data.targets, strict=True):
        value = loss(model(inputs[None]), target[None])
        total += torch.cat([part.flatten() for part in torch.autograd.grad(value, list(model.parameters()))])
    return total / len(data.inputs)


def test_a_full_batch_step_is_gradient_descent_with_decay_and_momentum():
    model, rate, decay, momentum = small(bias=True), 0.1, 0.01, 0.8
    reference = copy.deepcopy(model)
    train(model, MIXTURE, epochs=2, batch_size=None, learning_rate=rate, momentum=momentum, weight_decay=decay)
    velocity = torch.zeros_like(flat(reference))
    for _ in range(2):
        velocity = (
            momentum * velocity + risk_gradient(reference, nn.CrossEntropyLoss(), MIXTURE) + decay * flat(reference)
        )
        nn.utils.vector_to_parameters(flat(reference) - rate * velocity, reference.parameters())
    assert torch.allclose(flat(model), flat(reference), rtol=1e-12, atol=1e-15)


def test_after_the_drop_the_learning_rate_is_a_tenth(tmp_path):
    model, rate = small(), 0.1
    reference = copy.deepcopy(model)
    options = {"batch_size": None, "learning_rate": rate, "momentum": 0.0, "drop_rate_after": 2}
    train(model, MIXTURE, epochs=1, checkpoint=tmp_path / "half.pt", **options)
    train(model, MIXTURE, epochs=4, checkpoint=tmp_path / "half.pt", **options)
    for used in (rate, rate, rate / 10, rate / 10):
        step = used * risk_gradient(reference, nn.CrossEntropyLoss(), MIXTURE)
        nn.utils.vector_to_parameters(flat(reference) - step, reference.parameters())
    assert torch.allclose(flat(model), flat(reference), rtol=1e-12, atol=1e-15)


def test_an_epoch_visits_every_sample_once_in_an_order_of_the_seed():
    seen = []

    def watching(outputs, targets):
        if torch.is_grad_enabled() and len(targets) <= 7:
            seen.append(targets[:, 0].tolist())
        return 0.5 * (outputs - targets).square().sum(1)

    data = Data(torch.ones(20, 2, dtype=torch.float64), torch.arange(20.0, dtype=torch.float64)[:, None])
    for seed in (0, 0, 1):
        train(FullyConnected((2, 1)).build(), data, watching, epochs=2, batch_size=7, learning_rate=1e-4, seed=seed)
    runs = [seen[start : start + 6] for start in (0, 6, 12)]
    for run in runs:
        assert [len(batch) for batch in run] == [7, 7, 6, 7, 7, 6]
        for epoch in (run[:3], run[3:]):
            assert sorted(sample for batch in epoch for sample in batch) == list(range(20))
        assert run[:3] != run[3:]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("loss", ["squared", "cross_entropy", "log_cosh"])
def test_the_record_holds_mean_loss_accuracy_and_gradient_norm_of_all_samples(loss, monkeypatch):
    monkeypatch.setattr(objective_module, "_RECORDED", 7)
    model = small(bias=True)
    run = train(model, MIXTURE, loss, epochs=3, batch_size=16, learning_rate=0.02, weight_decay=0.1)
    one_hot = torch.eye(3, dtype=torch.float64)[MIXTURE.targets]
    functions = {
        "squared": (lambda out, target: 0.5 * (out - target).square().sum(1), one_hot),
        "cross_entropy": (nn.CrossEntropyLoss(reduction="none"), MIXTURE.targets),
        "log_cosh": (lambda out, target: torch.log(torch.cosh(out - target)).sum(1), one_hot),
    }
    function, targets = functions[loss]
    outputs = model(MIXTURE.inputs)
    assert run.final_loss == pytest.approx(function(outputs, targets).mean().item(), rel=1e-13)
    assert run.final_accuracy == (outputs.argmax(1) == MIXTURE.targets).double().mean().item()
    gradient = risk_gradient(model, function, Data(MIXTURE.inputs, targets)) + 0.1 * flat(model)
    assert run.final_gradient_norm == pytest.approx(gradient.norm().item(), rel=1e-12)
    assert run.moments.tolist() == [0, 1, 2, 3]


def test_digits_are_learned_to_99_percent_with_the_defaults():
    model = FullyConnected((64, 30, 20, 10), activation="relu").build()
    run = train(model, digits(), stop_at_accuracy=0.99, epochs=60)
    assert run.final_accuracy >= 0.99
    assert run.converged
    assert run.ending.startswith("accuracy 0.99 reached after")
    assert run.accuracy[-2] < 0.99
    assert run.loss[-1] < run.loss[0] / 10


def test_an_accuracy_that_is_not_reached_is_said():
    run = train(small(), MIXTURE, epochs=2, learning_rate=1e-6, stop_at_accuracy=1.0)
    assert (run.converged, run.ending) == (False, "2 epochs done")


def test_adam_and_single_precision_train_too():
    model = FullyConnected((4, 8, 3), activation="relu").build(dtype=torch.float32)
    run = train(model, MIXTURE, optimiser="adam", learning_rate=0.01, epochs=30)
    assert model[0].weight.dtype == torch.float32
    assert run.final_loss < 0.3 * run.loss[0]


def test_regression_has_no_accuracy_and_takes_a_vector_of_targets():
    inputs, targets = gaussian(30, 3)
    column = train(FullyConnected((3, 1)).build(), Data(inputs, targets), "squared", epochs=5, learning_rate=0.01)
    vector = train(FullyConnected((3, 1)).build(), Data(inputs, targets[:, 0]), "squared", epochs=5, learning_rate=0.01)
    assert column.accuracy.size == 0
    assert column.final_accuracy is None
    assert column.loss == pytest.approx(vector.loss, rel=1e-13)


def test_a_run_is_a_record_that_reads_back_from_json():
    run = train(small(), MIXTURE, epochs=4, record_every=3, learning_rate=0.01)
    assert run.moments.tolist() == [0, 3, 4]
    assert Record.from_json(run.to_json()) == run
    assert run.settings["learning_rate"] == 0.01
    assert run.provenance.data_hash


def test_training_leaves_random_state_modes_and_gradients_as_they_were():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.3), nn.Linear(5, 3)).double()
    model[1].eval()
    modes = [module.training for module in model.modules()]
    before = torch.get_rng_state()
    first = train(model, MIXTURE, epochs=2, batch_size=20, learning_rate=0.01)
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert first.final_loss < first.loss[0]


def test_a_small_model_is_trained_by_one_thread_and_the_old_number_comes_back():
    before = torch.get_num_threads()
    during = []
    torch.set_num_threads(2)
    try:
        for num_threads in (None, 2):
            train(
                small(),
                MIXTURE,
                epochs=1,
                num_threads=num_threads,
                progress=lambda _: during.append(torch.get_num_threads()),
            )
        with pytest.raises(UnknownName, match="loss must be one of"):
            train(small(), MIXTURE, "none")
        assert during == [1, 2]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def convolutional_float32(seed=0):
    torch.manual_seed(seed)
    layers = (nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, 10))


def test_images_have_their_channels_side_by_side_while_training_and_the_weights_keep_their_memory():
    data, model = digits(num_samples=60), convolutional_float32()
    reference, memory = copy.deepcopy(model), model[4].weight.data  # as a flat vector of all parameters would hold it
    formats = set()
    hook = model[2].register_forward_hook(
        lambda layer, inputs, outputs: formats.add(outputs.is_contiguous(memory_format=torch.channels_last))
    )
    train(model, data, epochs=2, batch_size=20, learning_rate=0.1, momentum=0.5)
    hook.remove()
    assert True in formats
    assert model[4].weight.data_ptr() == memory.data_ptr()
    assert model[4].weight.is_contiguous()
    optimiser, order = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.5), torch.Generator().manual_seed(0)
    for _ in range(2):
        for chosen in torch.randperm(60, generator=order).split(20):
            optimiser.zero_grad()
            nn.functional.cross_entropy(reference(data.inputs[chosen].float()), data.targets[chosen]).backward()
            optimiser.step()
    assert torch.allclose(flat(model), flat(reference), rtol=1e-4, atol=1e-6)
    assert torch.equal(memory, model[4].weight)


def test_weights_keep_their_memory_when_a_training_diverges():
    model = convolutional_float32()
    memory = model[4].weight.data
    with pytest.raises(TrainingDiverged, match="the loss must stay finite"):
        train(model, digits(num_samples=60), epochs=3, learning_rate=1e30)
    assert model[4].weight.data_ptr() == memory.data_ptr()
    assert model[4].weight.is_contiguous()


def test_dropout_draws_from_the_seed_and_not_from_the_global_state():
    base = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    runs = []
    for global_seed, seed in ((1, 0), (2, 0), (2, 1)):
        torch.manual_seed(global_seed)
        runs.append(train(copy.deepcopy(base), MIXTURE, epochs=2, seed=seed, batch_size=None))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_frozen_parameters_stay_and_do_not_count():
    model = small(bias=True)
    model[0].weight.requires_grad_(False)
    frozen = model[0].weight.clone()
    train(model, MIXTURE, epochs=2, weight_decay=0.1)
    assert torch.equal(model[0].weight, frozen)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(InvalidInput, match="a model with parameters to train; it has none"):
        train(model, MIXTURE)


def test_progress_is_told_every_recorded_epoch():
    moments = []
    run = train(small(), MIXTURE, epochs=4, record_every=2, progress=moments.append)
    assert [(moment.done, moment.total) for moment in moments] == [(2, 4), (4, 4)]
    assert moments[-1].evaluation.loss == run.final_loss


def test_a_loss_that_becomes_infinite_is_an_error_that_names_the_step_and_the_remedy():
    data = Data(1e6 * torch.ones(8, 4, dtype=torch.float64), torch.zeros(8, 3, dtype=torch.float64))
    model = FullyConnected((4, 5, 5, 3)).build()
    with pytest.raises(
        TrainingDiverged, match=r"became (nan|inf) in epoch \d+, step \d+\. Lower the learning rate, which"
    ):
        train(model, data, "squared", epochs=50, batch_size=1, learning_rate=10.0)


def test_a_model_that_starts_with_nan_is_an_error():
    model = small()
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")
    with pytest.raises(TrainingDiverged, match=r"became nan in epoch 0\. No step was made yet"):
        train(model, MIXTURE)


BAD = [
    ({"loss": "cros_entropy"}, UnknownName, "Did you mean 'cross_entropy'"),
    ({"optimiser": "sgdd"}, UnknownName, "Did you mean 'sgd'"),
    ({"epochs": -1}, InvalidInput, "epochs must be an integer of at least 0; got -1"),
    ({"batch_size": 0}, InvalidInput, "batch_size must be an integer of at least 1; got 0"),
    ({"drop_rate_after": 0}, InvalidInput, "drop_rate_after must be an integer of at least 1; got 0"),
    ({"record_every": 0}, InvalidInput, "record_every must be an integer of at least 1; got 0"),
    ({"checkpoint_every": 0}, InvalidInput, "checkpoint_every must be an integer of at least 1; got 0"),
    ({"learning_rate": 0.0}, InvalidInput, "learning_rate must be positive"),
    ({"weight_decay": -1.0}, InvalidInput, "weight_decay must be finite and not negative; got -1.0"),
    ({"num_threads": 0}, InvalidInput, "num_threads must be at least 1; got 0"),
    ({"loss": nn.CrossEntropyLoss()}, InvalidInput, r"one value per sample, 60 of them; it gave shape \(\)"),
    ({"data": (MIXTURE.inputs, MIXTURE.targets[:5])}, InvalidInput, "there are 60 inputs and 5 targets"),
    ({"data": (MIXTURE.inputs[:0], MIXTURE.targets[:0])}, InvalidInput, "there are 0 inputs and 0 targets"),
    (
        {"data": (MIXTURE.inputs, MIXTURE.inputs), "loss": "squared"},
        InvalidInput,
        r"one value per output .* has \(4,\)",
    ),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD)
def test_a_training_that_cannot_be_is_refused_and_leaves_the_model_alone(options, error, message):
    model = small()
    before = flat(model)
    with pytest.raises(error, match=message):
        train(model, options.pop("data", MIXTURE), **options)
    assert torch.equal(flat(model), before)


def test_a_loss_that_broadcasts_is_refused():
    data = gaussian(20, 4)
    model, loss = FullyConnected((4, 5, 1)).build(), lambda outputs, targets: (outputs - targets).square().mean(1)
    with pytest.raises(
        InvalidInput, match=r"the loss must treat samples independently.*shape \(16, 1\) and targets \(16,\)"
    ):
        train(model, Data(data.inputs, data.targets[:, 0]), loss, epochs=1)
    assert train(model, data, loss, epochs=1).loss[-1] > 0


def test_labels_that_do_not_fit_the_outputs_are_refused():
    with pytest.raises(
        InvalidInput, match=r"labels must be in 0..2 for a network with 3 outputs; sample 2 has label 3"
    ):
        train(small(), Data(MIXTURE.inputs, MIXTURE.targets + 1), epochs=1)
    with pytest.raises(InvalidInput, match="labels, which need two outputs or more; the network has 1"):
        train(FullyConnected((4, 5, 1)).build(), Data(MIXTURE.inputs, 0 * MIXTURE.targets), "squared", epochs=1)


def test_arrays_are_refused():
    with pytest.raises(InvalidInput, match="training needs tensors; got ndarray and Tensor"):
        train(small(), (MIXTURE.inputs.numpy(), MIXTURE.targets), epochs=1)


def test_a_record_runs_the_model_once_on_every_sample_a_few_at_a_time():
    seen = []

    class Watched(nn.Linear):
        def forward(self, inputs):
            seen.append(len(inputs))
            return super().forward(inputs)

    data = Data(torch.ones(1200, 2, dtype=torch.float64), torch.arange(1200) % 3)
    goal = objective_module.objective(Watched(2, 3, dtype=torch.float64), data, "cross_entropy")
    seen.clear()

    assert goal.evaluate().accuracy == pytest.approx(1 / 3)
    assert seen == [512, 512, 176]  # loss, gradient and accuracy from the same outputs


def test_steps_are_those_of_plain_stochastic_gradient_descent_to_the_same_bits():
    model, options = small(bias=True).float(), {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}
    reference, order = copy.deepcopy(model), torch.Generator().manual_seed(3)
    train(model, MIXTURE, epochs=4, batch_size=7, learning_rate=0.05, momentum=0.9, weight_decay=0.01, seed=3)
    plain = torch.optim.SGD(reference.parameters(), foreach=False, fused=False, **options)
    for _ in range(4):
        for batch in torch.randperm(60, generator=order).split(7):
            outputs = reference(MIXTURE.inputs[batch].float())
            plain.zero_grad()
            nn.functional.cross_entropy(outputs, MIXTURE.targets[batch], reduction="none").mean().backward()
            plain.step()

    assert torch.equal(flat(model), flat(reference))
