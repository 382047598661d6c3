"""What all others speak of: values, hardware, API objects, releases and reasons. Pure."""
