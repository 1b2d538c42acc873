"""The answers of the Messages API: a stream, a document, a count, a list of models, an error."""
