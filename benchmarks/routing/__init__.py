"""Routing policies over modelled agents and workers: production's code for the decision, a model for the rest."""
