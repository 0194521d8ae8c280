"""How commands print: tables, JSON, records, dumps of segments and indexes, progress bars."""
