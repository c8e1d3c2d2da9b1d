"""Schemas of a schema registry: asked for when a batch names one that is not known, and handed over with it.

Theory of operation. The bytes of a record name their schema by an id. `SourceSchemas` finds the ids of a
batch and puts the schemas beside them, as columns, before the gateway gets the batch: so what a batch says
never changes, whenever it is decoded and for whomever, and nothing that decodes waits for a network. What
has an id in a registry never changes either, so a schema is asked for once (`SchemaRegistry`, for all
sources) and kept while it is used (`SchemaCache`).

A registry that does not answer says nothing about a record: the batch is held back, its source is degraded as
with a cluster that is away, and other sources go on. An id that the registry does not know is a bad record.
That it does not know it is forgotten after a while: it may be registered later. Batches that have been handed
over stay as they are; who reads these records again, from the topic, gets the schema then.

An id is four bytes that any producer can make up. How long made-up ids may hold up a topic is bounded in
`refusal_budget`.

What is written to a topic may bring a schema, or name one by its version: `subject_versions`. Only who writes
waits there for a registry that is away, and not long.
"""
