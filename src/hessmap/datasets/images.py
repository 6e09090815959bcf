"""The data sets of images: digits (embedded), MNIST, Fashion-MNIST and CIFAR-10 (from their original files).

All take the same options, applied in this order:

- ``split`` is "train" or "test" (digits have no test part);
- ``classes`` keeps some classes, relabelled 0, 1, ... in the order given;
- ``num_samples`` takes the first ones, or with a ``seed`` that many at random (classes are not balanced);
- ``side`` scales the images down to side x side by area means;
- ``standardise`` centres and scales each feature (of training data; test data need the training statistics);
- ``one_hot`` turns labels into float64 vectors.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hessmap.datasets import preprocessing
from hessmap.datasets.catalogue import CIFAR10, FASHION_MNIST, MNIST, ImageFiles, Split, require_split
from hessmap.datasets.data import Data
from hessmap.datasets.image_files import labelled_images
from hessmap.errors import (
    InvalidInput,
    checked_count,
    checked_seed,
    integer_or_none,
    list_of,
    require,
    sentence,
    short_text,
)

_CHUNK = 4096  # images turned to float64 at a time, so that temporaries stay small beside the result


def digits(
    num_samples: int | None = None,
    *,
    split: Split = "train",
    classes: Iterable[int] | None = None,
    side: int | None = None,
    one_hot: bool = False,
    standardise: bool = False,
    seed: int | None = None,
) -> Data:
    """The 1,797 digits of 8x8 pixels of Alpaydin & Kaynak (1998), embedded: (1797, 64) values k/16 in [0, 1].

    Division by 16 is exact, so linear relations between pixels stay exact. Three pixels are zero in every
    image: the second moment of the inputs has rank 61. There is no test part. Options: see the module.

    >>> inputs, targets = digits()
    >>> inputs.shape, targets.unique().tolist()
    (torch.Size([1797, 64]), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    >>> torch.linalg.matrix_rank(inputs.T @ inputs).item()
    61
    """
    if isinstance(num_samples, str):  # as the other sets take their split
        got, remedy = f"got {num_samples!r}", "Give the split by name: digits(split='train')"
        raise InvalidInput(sentence("num_samples of the digits must be an integer", got, remedy))
    require_split(split)
    remedy = "Draw samples with a seed, and hold some of them out"
    require(split == "train", "digits have no test part", "got split='test'", remedy)
    with gzip.open(Path(__file__).with_name("digits.csv.gz"), "rt") as file:
        lines = torch.from_numpy(np.loadtxt(file, delimiter=","))
    parts = iter([Data(lines[:, :64].reshape(-1, 1, 8, 8), lines[:, 64].long())])
    chosen, num_classes = _wanted_samples(parts, 10, classes, num_samples, seed)
    return _rows_and_targets(chosen, 16, side, False, num_classes if one_hot else None, standardise)


def mnist(
    split: Split = "train",
    num_samples: int | None = None,
    *,
    classes: Iterable[int] | None = None,
    side: int | None = None,
    one_hot: bool = False,
    standardise: bool = False,
    seed: int | None = None,
) -> Data:
    """MNIST: 60,000 training and 10,000 test images of handwritten digits, 28x28, values k/255 in [0, 1].

    LeCun, Bottou, Bengio & Haffner 1998. Options: see the module.
    """
    return image_data(MNIST, split, num_samples, classes, side, False, one_hot, standardise, seed)


def fashion_mnist(
    split: Split = "train",
    num_samples: int | None = None,
    *,
    classes: Iterable[int] | None = None,
    side: int | None = None,
    one_hot: bool = False,
    standardise: bool = False,
    seed: int | None = None,
) -> Data:
    """Fashion-MNIST: 60,000 training and 10,000 test images of clothing, 28x28, values k/255 in [0, 1].

    Xiao, Rasul & Vollgraf 2017. Options: see the module.
    """
    return image_data(FASHION_MNIST, split, num_samples, classes, side, False, one_hot, standardise, seed)


def cifar10(
    split: Split = "train",
    num_samples: int | None = None,
    *,
    classes: Iterable[int] | None = None,
    side: int | None = None,
    grayscale: bool = True,
    one_hot: bool = False,
    standardise: bool = False,
    seed: int | None = None,
) -> Data:
    """CIFAR-10: 50,000 training and 10,000 test photographs of ten things, 32x32, values in [0, 1].

    They are turned to gray unless ``grayscale=False``, so that the input dimension is side^2, as for the
    other sets; in colour it is 3 side^2: red, then green, then blue. Krizhevsky 2009. Options: see the module.
    """
    return image_data(CIFAR10, split, num_samples, classes, side, grayscale, one_hot, standardise, seed)


def image_data(
    source: ImageFiles,
    split: Split = "train",
    num_samples: int | None = None,
    classes: Iterable[int] | None = None,
    side: int | None = None,
    grayscale: bool = False,
    one_hot: bool = False,
    standardise: bool = False,
    seed: int | None = None,
) -> Data:
    """The training or test part of a data set of files, with the options of the module; values k/255."""
    require_split(split)
    require(
        split == "train" or not standardise,
        "test data must be standardised with the statistics of the training data",
        "got split='test', standardise=True",
        "Use standardise(test_inputs, reference=training_inputs)",
    )
    parts = (
        Data(torch.tensor(images), torch.tensor(labels).long()) for images, labels in labelled_images(source, split)
    )
    chosen, num_classes = _wanted_samples(parts, source.num_classes, classes, num_samples, seed)
    return _rows_and_targets(chosen, 255, side, grayscale, num_classes if one_hot else None, standardise)


def _wanted_samples(
    parts: Iterator[Data],
    num_classes: int,
    classes: Iterable[int] | None,
    num_samples: int | None,
    seed: int | None,
) -> tuple[Data, int]:
    """The wanted samples as they come, and how many classes they have; reads no more parts than needed."""
    given = list(range(num_classes)) if classes is None else list_of("classes", classes)
    labels = [integer_or_none(label) for label in given]
    wanted = [label for label in labels if label is not None and 0 <= label < num_classes]
    require(len(wanted) == len(given), f"classes must be among 0..{num_classes - 1}", f"got {short_text(given)}")
    num_samples = None if num_samples is None else checked_count("num_samples", num_samples)
    seed = None if seed is None else checked_seed(seed)
    gathered: list[Data] = []
    num_found = 0
    for part in parts:
        gathered.append(part)
        num_found += int(torch.isin(part.targets, torch.tensor(wanted)).sum())
        if seed is None and num_samples is not None and num_found >= num_samples:
            break
    whole = Data(torch.cat([part.inputs for part in gathered]), torch.cat([part.targets for part in gathered]))
    if classes is not None:
        whole = preprocessing.class_subset(whole, wanted)
    return preprocessing.subsample(whole, num_samples, seed), len(wanted)


def _rows_and_targets(
    chosen: Data, white: int, side: int | None, grayscale: bool, num_classes: int | None, standardise: bool
) -> Data:
    """Float64 rows from images with ``white`` as brightest value; one-hot targets if num_classes is given."""
    rows = []
    for images in torch.split(chosen.inputs, _CHUNK):
        values: Tensor = preprocessing.grayscale(images) if grayscale else images.double()
        values = values if side is None else preprocessing.downscale(values, side)
        rows.append(values.flatten(1) / white)
    inputs = torch.cat(rows)
    targets = chosen.targets if num_classes is None else preprocessing.one_hot(chosen.targets, num_classes)
    return Data(preprocessing.standardise(inputs) if standardise else inputs, targets)
