"""The tables of the store, and the views in which people read them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

APPLICATION_ID = 0x4845534D  # "HESM" in the header of the file: it says whose SQLite file this is
SCHEMA_VERSION = 5  # any change of the tables is another version, which other versions of hessmap refuse

SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};

CREATE TABLE provenance (
    id      INTEGER PRIMARY KEY,
    content TEXT NOT NULL UNIQUE
);

CREATE TABLE map (
    id             INTEGER PRIMARY KEY,
    name           TEXT    NOT NULL UNIQUE,
    created        TEXT    NOT NULL,
    title          TEXT    NOT NULL,
    network        TEXT    NOT NULL,
    loss           TEXT    NOT NULL,
    num_parameters INTEGER NOT NULL,
    num_samples    INTEGER NOT NULL,
    risk           REAL,
    data_hash      TEXT    NOT NULL,
    options        TEXT,
    record         TEXT    NOT NULL,
    provenance_id  INTEGER NOT NULL REFERENCES provenance (id)
);

CREATE VIEW maps AS
    SELECT map.name, map.created, map.title, map.network, map.loss, map.num_parameters, map.num_samples, map.risk,
           map.options, json_extract(provenance.content, '$.versions.hessmap') AS hessmap,
           json_extract(provenance.content, '$.versions.torch') AS torch, map.data_hash
    FROM map JOIN provenance ON provenance.id = map.provenance_id;

CREATE VIEW map_layers AS
    SELECT map.name AS map, json_extract(layer.value, '$.name') AS layer, json_extract(layer.value, '$.shape') AS shape,
           json_extract(layer.value, '$.num_parameters') AS num_parameters,
           json_extract(layer.value, '$.rank.value') AS rank,
           json_extract(layer.value, '$.top_eigenvalue') AS top_eigenvalue,
           json_extract(layer.value, '$.trace') AS trace,
           json_extract(layer.value, '$.curvature_share') AS curvature_share,
           json_extract(layer.value, '$.factors.input_ratio') AS input_ratio,
           json_extract(layer.value, '$.factors.outlier_share') AS outlier_share,
           json_extract(layer.value, '$.factors.kronecker_overlap') AS kronecker_overlap
    FROM map, json_each(map.record, '$.network.layers') AS layer;

CREATE TABLE track (
    id             INTEGER PRIMARY KEY,
    name           TEXT    NOT NULL UNIQUE,
    created        TEXT    NOT NULL,
    network        TEXT    NOT NULL,
    loss           TEXT    NOT NULL,
    part           TEXT    NOT NULL,
    num_parameters INTEGER NOT NULL,
    num_samples    INTEGER NOT NULL,
    data_hash      TEXT    NOT NULL,
    share          REAL,
    seconds        REAL    NOT NULL,
    spent          REAL    NOT NULL,
    settings       TEXT    NOT NULL,
    provenance_id  INTEGER NOT NULL REFERENCES provenance (id)
);

CREATE TABLE track_point (
    id       INTEGER PRIMARY KEY,
    track_id INTEGER NOT NULL REFERENCES track (id) ON DELETE CASCADE,
    step     INTEGER NOT NULL,
    measured TEXT    NOT NULL,
    record   TEXT    NOT NULL,
    UNIQUE (track_id, step)
);

CREATE VIEW tracks AS
    SELECT track.name, track.created, track.network, track.loss, track.part, track.num_parameters, track.num_samples,
           (SELECT count(*) FROM track_point WHERE track_id = track.id) AS num_points,
           (SELECT max(step) FROM track_point WHERE track_id = track.id) AS last_step,
           track.share, round(track.seconds, 3) AS seconds, round(track.spent, 3) AS spent, track.settings,
           json_extract(provenance.content, '$.versions.hessmap') AS hessmap,
           json_extract(provenance.content, '$.versions.torch') AS torch, track.data_hash
    FROM track JOIN provenance ON provenance.id = track.provenance_id;

CREATE VIEW track_points AS
    SELECT track.name AS track, step, json_extract(record, '$.risk') AS risk,
           json_extract(record, '$.gradient_norm') AS gradient_norm,
           json_extract(record, '$.eigenvalues.array[0]') AS sharpness,
           json_extract(record, '$.trace.value') AS trace,
           json_extract(record, '$.trace.standard_error') AS trace_standard_error,
           json_extract(record, '$.gradient_overlap.value') AS gradient_overlap,
           json_extract(record, '$.converged') AS converged, json_extract(record, '$.num_products') AS num_products,
           round(json_extract(record, '$.cost'), 3) AS cost, measured
    FROM track JOIN track_point ON track_point.track_id = track.id;
"""


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that holds the right to write from its beginning, and is undone by any error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk makes SQLite roll back by itself
            connection.execute("ROLLBACK")
        raise
