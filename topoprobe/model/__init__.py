"""What the rest of topoprobe talks about: frozen structs, units and errors. No I/O here."""
