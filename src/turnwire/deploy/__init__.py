"""The gateway under the supervision of something else."""
