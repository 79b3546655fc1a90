"""tenure: a scheduler for shared GPU clusters (values, facts, log, runtime, SDK and CLI; the roles are in `services`)."""
