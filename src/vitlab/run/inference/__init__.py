"""Open a finished run and apply it: to images, to texts, as a teacher."""
