"""Sweeps that survive: their jobs on disk, the engines that run them, and who supervises whom."""
