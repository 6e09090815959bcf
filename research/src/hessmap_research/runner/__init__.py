"""Running questions: studies, their cases, the engines that measure them and the store that keeps the records."""
