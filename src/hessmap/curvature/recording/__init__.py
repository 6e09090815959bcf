"""One reading of a model: every use of every trainable parameter in a forward pass."""

from hessmap.curvature.recording.layer_call import LayerCall
from hessmap.curvature.recording.record import record, recording_of
from hessmap.curvature.recording.recorder import Recorder
from hessmap.curvature.recording.replay import replay
from hessmap.curvature.recording.uses import Kind, LayerUse, ParameterPart, Recording, SampleAxis

__all__ = [
    "Kind",
    "LayerCall",
    "LayerUse",
    "ParameterPart",
    "Recorder",
    "Recording",
    "SampleAxis",
    "record",
    "recording_of",
    "replay",
]
