"""The gateways that are measured: how each is installed outside the clone, started behind its engine, and stopped."""
