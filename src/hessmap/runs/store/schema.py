"""The tables of the store, and the views in which people read them.

docs/studies.md explains every column.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

APPLICATION_ID = 0x4845534D  # "HESM" in the header of the file: it says whose SQLite file this is
SCHEMA_VERSION = 5  # any change of the tables is another version, which other versions of hessmap refuse

SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};

CREATE TABLE study (
    id         INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    num_done   INTEGER NOT NULL DEFAULT 0,
    num_failed INTEGER NOT NULL DEFAULT 0,
    seconds    REAL    NOT NULL DEFAULT 0,
    UNIQUE (name, version)
);

CREATE TABLE provenance (
    id      INTEGER PRIMARY KEY,
    content TEXT NOT NULL UNIQUE
);

CREATE TABLE result (
    id            INTEGER PRIMARY KEY,
    study_id      INTEGER NOT NULL REFERENCES study (id),
    data          TEXT    NOT NULL,
    data_hash     TEXT    NOT NULL,
    case_key      TEXT    NOT NULL,
    status        TEXT    NOT NULL CHECK (status IN ('done', 'failed')),
    record        TEXT,
    error         TEXT,
    attempts      INTEGER NOT NULL,
    seconds       REAL    NOT NULL,
    finished      TEXT    NOT NULL,
    provenance_id INTEGER NOT NULL REFERENCES provenance (id),
    UNIQUE (study_id, data_hash, case_key),
    CHECK ((status = 'done') = (record IS NOT NULL)),
    CHECK ((status = 'failed') = (error IS NOT NULL))
);

CREATE TRIGGER count_inserted AFTER INSERT ON result BEGIN
    UPDATE study SET num_done = num_done + (new.status = 'done'), num_failed = num_failed + (new.status = 'failed'),
                     seconds = seconds + new.seconds WHERE id = new.study_id;
END;

CREATE TRIGGER count_deleted AFTER DELETE ON result BEGIN
    UPDATE study SET num_done = num_done - (old.status = 'done'), num_failed = num_failed - (old.status = 'failed'),
                     seconds = seconds - old.seconds WHERE id = old.study_id;
END;

CREATE TRIGGER count_updated AFTER UPDATE OF status, seconds ON result BEGIN
    UPDATE study SET num_done = num_done + (new.status = 'done') - (old.status = 'done'),
                     num_failed = num_failed + (new.status = 'failed') - (old.status = 'failed'),
                     seconds = seconds + new.seconds - old.seconds WHERE id = new.study_id;
END;

CREATE VIEW readable AS
    SELECT study.name AS study, study.version, result.data, result.case_key AS "case", result.status, result.record,
           result.error, result.attempts, round(result.seconds, 3) AS seconds, result.finished,
           json_extract(provenance.content, '$.versions.hessmap') AS hessmap,
           json_extract(provenance.content, '$.versions.torch') AS torch, result.data_hash
    FROM result JOIN study ON study.id = result.study_id JOIN provenance ON provenance.id = result.provenance_id;

CREATE VIEW failures AS
    SELECT study, version, data, "case", error, attempts, finished FROM readable WHERE status = 'failed';

CREATE VIEW overview AS
    SELECT name AS study, version, num_done AS done, num_failed AS failed, round(seconds, 1) AS seconds FROM study;

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
