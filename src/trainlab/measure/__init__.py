"""What a step costs: time, phases, operators, layers, memory, and the limits of the machine."""
