"""Protobuf: messages of a .proto file that is compiled when it is first needed."""
