"""Who measures the cases of a study: this process, local processes, or a Dask cluster."""

from hessmap.runs.engines.choice import ENGINES, Engine, EngineName, engine_for

__all__ = ["ENGINES", "Engine", "EngineName", "engine_for"]
