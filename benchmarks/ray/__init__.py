"""Replicas of the gateway on Ray, started and measured."""
