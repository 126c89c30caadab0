"""What commands share: options, values, the service and the consoles, output and errors."""
