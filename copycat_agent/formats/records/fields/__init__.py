"""What tables and trees make of text: types, columns, fields."""
