import { fileContract } from "../support/file-contract.ts";

fileContract("gvisor");
