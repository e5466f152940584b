"""The public interface of a lake, the same in this process and through a server: operations, requests and results."""
