"""One run: built, trained, saved, resumed, evaluated and filmed."""
