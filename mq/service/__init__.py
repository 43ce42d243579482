"""What a broker does for its clients, whatever they speak. Fronts translate to it and from it."""
