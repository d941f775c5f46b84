"""Pictures of coloured shapes with captions in English or German, whose facts can be judged."""
