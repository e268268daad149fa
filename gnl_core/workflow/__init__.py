"""Durable workflows: plain functions whose steps are calls of the engine, under names of their author's."""
