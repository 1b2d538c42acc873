"""The call syntaxes: each codec reads one of them, told its markers by a table."""
