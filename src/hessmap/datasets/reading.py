"""From the files of a data set to checked arrays of bytes."""

from __future__ import annotations

from collections.abc import Iterator

from hessmap.datasets.catalogue import DataFile, ImageFiles, Split, require_split
from hessmap.datasets.file_formats import Bytes, check_labels, read_cifar_batch, read_idx
from hessmap.datasets.locations import ENVIRONMENT_VARIABLE, data_folders, found_file, unpacked
from hessmap.errors import DataFileError, sentence


def labelled_images(source: ImageFiles, split: Split) -> Iterator[tuple[Bytes, Bytes]]:
    """Images (n, channels, height, width) and labels (n,), file by file, each checked before it is given.

    The form is checked before the hash: a wrong form names its cause, a wrong hash does not.
    """
    require_split(split)
    files = source.train if split == "train" else source.test
    groups = [files] if source.format == "idx" else [(file,) for file in files]
    for group in groups:
        contents = [_content(source, file) for file in group]
        if source.format == "idx":
            images, labels = (
                read_idx(contents[0], 3, group[0].stem)[:, None],
                read_idx(contents[1], 1, group[1].stem),
            )
        else:
            images, labels = read_cifar_batch(contents[0], group[0].stem)
        num_samples = (source.num_train if split == "train" else source.num_test) // len(groups)
        _check_count(source, group[0], len(images), num_samples)
        _check_count(source, group[-1], len(labels), num_samples)
        _check_shape(source, group[0], images)
        check_labels(labels, source.num_classes, group[-1].stem)
        for file, content in zip(group, contents, strict=True):
            _check_original(source, file, content)
        yield images, labels


def _content(source: ImageFiles, file: DataFile) -> bytes:
    path = found_file(source.folder, file.stem)
    if path is None:
        searched = ", ".join(str(parent / source.folder) for parent in data_folders())
        raise DataFileError(
            sentence(
                f"{source.name} needs the file {file.stem} (plain, .gz or .xz)",
                f"it is in none of {searched}",
                f"{source.source}; put them there, or set {ENVIRONMENT_VARIABLE} to the folder that holds "
                f"{source.folder}",
            )
        )
    return unpacked(path)


def _check_count(source: ImageFiles, file: DataFile, found: int, expected: int) -> None:
    if found != expected:
        must = f"{file.stem} of {source.name} must hold {expected} samples"
        raise DataFileError(sentence(must, f"it holds {found}", source.source))


def _check_shape(source: ImageFiles, file: DataFile, images: Bytes) -> None:
    if images.shape[1:] != source.image_shape:
        must = f"images of {source.name} must have (channels, height, width) = {source.image_shape}"
        raise DataFileError(sentence(must, f"those of {file.stem} have {images.shape[1:]}", source.source))


def _check_original(source: ImageFiles, file: DataFile, content: bytes) -> None:
    if not file.is_original(content):
        must = f"{file.stem} must be the published file of {source.name}"
        got = f"{found_file(source.folder, file.stem)} has another SHA-256"
        raise DataFileError(sentence(must, got, f"It is another data set or was changed. {source.source}"))
