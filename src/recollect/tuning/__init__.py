"""`recollect tune`: hyperparameter search with Optuna, each trial trained on several seeds."""
