"""What a load takes: measured costs turned into machines and money, and a simulation of queues."""

__all__ = ["costs", "machine", "planning", "queues"]
