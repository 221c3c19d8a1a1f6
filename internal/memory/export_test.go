package memory

// Least is the budget of a process with little memory.
const Least = least
