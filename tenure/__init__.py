"""tenure: a scheduler for shared GPU clusters (values, facts, log, runtime, SDK, CLI; the roles are in `services`)."""
