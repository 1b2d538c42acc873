"""The fields of a request body, for every API: opened, read once, each with a row that says what becomes of it."""
