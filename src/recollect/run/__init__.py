"""One run: build, train, log, save, resume, evaluate and film."""
