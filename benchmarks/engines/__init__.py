"""Scripted engines, one for each wire that a gateway can stand in front of; all play the same playbook."""
