"""Two ways to serve the same tasks, compared: requests without a model, results with paired statistics."""
