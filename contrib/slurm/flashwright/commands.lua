-- Files and commands. Each word of a command reaches its program as it is, whatever characters it has: the shell sees it in single
-- quotes alone.

local settings, here = ...
local commands = {}

function commands.read_file(path)
	local file = io.open(path, "rb")
	local text = file and file:read("*a")
	if file then
		file:close()
	end
	return text
end

-- A name that no other process, and no other thread of this one, has now.
local function own_name(path)
	local stat = io.open("/proc/self/stat")
	local process = stat and stat:read("*l"):match("^%d+") or "0"
	if stat then
		stat:close()
	end
	return path .. ".new." .. process .. "-" .. tostring({}):gsub("%W", "")
end

-- Replaces a file by a whole one: who reads meanwhile has the old one or the new one. Several may do so at once: each has a file of its
-- own until it is whole. refresh.sh removes what a killed one has left.
function commands.write_file(path, text)
	local new = own_name(path)
	local file = assert(io.open(new, "wb"))
	assert(file:write(text))
	assert(file:close())
	assert(os.rename(new, path))
end

function commands.quote(word)
	return "'" .. tostring(word):gsub("'", "'\\''") .. "'"
end

-- A command line of these words.
function commands.line(words)
	local parts = {}
	for index, word in ipairs(words) do
		parts[index] = commands.quote(word)
	end
	return table.concat(parts, " ")
end

-- Runs a command line: its exit code, its output, and what it said on standard error, as one line.
function commands.run(line)
	local errors = os.tmpname()
	local pipe = assert(io.popen(line .. " </dev/null 2>" .. commands.quote(errors) .. "; echo \" $?\"", "r"))
	local output, code = pipe:read("*a"):match("^(.*) (%d+)\n$")
	pipe:close()
	local said = (commands.read_file(errors) or ""):gsub("error: ", ""):gsub("%c+$", ""):gsub("%c+", "; ")
	os.remove(errors)
	return tonumber(code) or 1, output or "", said
end

-- Where the journal of a job's moves is.
function commands.journal(job)
	return settings.state .. "/journals/" .. job.id
end

-- The command line that runs these words with the rights of a job's user. The socket in the environment is that of the job's server; it
-- also tells the job's own processes from others that have got their numbers.
function commands.as_user(job, words)
	local become = settings.become:gsub("%%([ug])", { u = job.uid, g = job.gid })
	local journal = commands.journal(job)
	return become .. " " .. commands.line({ "env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", "HOME=" .. journal,
		"FLASHWRIGHT_STAGE_SOCKET=" .. journal .. "/stage.sock" }) .. " " .. commands.line(words)
end

-- Runs flashwright as the job's user.
function commands.flashwright(job, ...)
	return commands.run(commands.as_user(job, { settings.flashwright, "stage", ... }))
end

-- Runs as-user.sh as the job's user.
function commands.helper(job, verb, ...)
	local script = assert(commands.read_file(here .. "as-user.sh"))
	return commands.run(commands.as_user(job, { "bash", "-c", script, "bash", verb, commands.journal(job), ... }))
end

-- Runs a script of bash that nobody waits for, without the descriptors of this process.
function commands.leave_behind(script)
	local script_alone = [[for descriptor in /proc/self/fd/*; do
	descriptor=${descriptor##*/}
	if [ "$descriptor" -gt 2 ]; then eval "exec $descriptor>&-"; fi
done
]] .. script
	os.execute(commands.line({ "setsid", "bash", "-c", script_alone }) .. " </dev/null >/dev/null 2>&1 &")
end

return commands
