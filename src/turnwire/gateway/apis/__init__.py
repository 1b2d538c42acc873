"""One object per API, and the routes around turns: models, token counts, embeddings, administration."""
