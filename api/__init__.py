"""The REST API. app makes the application, and errors has the HTTP status of every error."""
