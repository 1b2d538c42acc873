"""Small synthetic conversations that show what a chat template does."""
