"""The built-in model: llama.cpp in this process, its downloads and its embeddings."""
