"""Who calls: where identities come from, and the one place where every call of every service passes."""
