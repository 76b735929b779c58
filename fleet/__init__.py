"""Orchestration and deployment of llama.cpp fleets."""

__version__ = "0.1.0"
