"""What Crannog is made of: the packages it pins, their licences, their known vulnerabilities, and the SBOM of a release."""
