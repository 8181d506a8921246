-- Burst buffers of Slurm jobs, on pools of flashwright. Slurm's plugin burst_buffer/lua calls the functions slurm_bb_* at the end.
-- docs/slurm.md is the guide for administrators and for users.
--
-- Where what runs
--   In slurmctld itself: job_process, pools, paths. They read small files, and start at most one process that they do not wait for.
--   In a process of its own that slurmctld may kill at any moment: all others. What a killed one has begun, the next one finishes.
--   With the rights of the job's user, and no others: everything that touches the pool, the job's files or the slow tier
--   (`settings.become`). What moves bytes is one `flashwright stage serve` for each job, which lives on when slurmctld dies.
--
-- State
--   STATE/records/JOB.json    what is known of a job; written by this file alone, in a directory of SlurmUser (mode 0700)
--   STATE/records/JOB.renew   the command that renews its reservation
--   STATE/records/pools.json  the pools as they were seen last
--   STATE/journals/JOB        the journal of the job's moves; belongs to the job's user, in a directory of root (mode 1777)
--
-- What teardown may delete: nothing while a source of a stage_out is there, because `stage mv` removes it once its copy is durable and
-- verified; nothing while something is in a source of a drain, unless `stage watch --once` has ended well after the job.

local settings = {
	flashwright = "/usr/local/bin/flashwright",
	-- The site's pools. `ledger` is named in it, so that all users' reservations are in one place.
	pools = "/etc/flashwright/pools.toml",
	state = "/var/lib/flashwright/slurm",
	-- Runs a command with the rights of user %u and group %g. This one needs SlurmUser=root.
	become = "setpriv --reuid=%u --regid=%g --init-groups --",
	-- Most bytes a second of a job's stage-in and stage-out: "2GB/s"; nil: no limit.
	bwlimit = nil,
	-- How long setup waits for room that others than Slurm's jobs hold.
	wait = "30s",
	-- Between two looks at a stage that is under way, where Slurm (before 24.05) does not ask by itself, in seconds.
	poll = "2",
}

local HERE = debug.getinfo(1, "S").source:match("^@(.*/)") .. "flashwright/"
local commands = assert(loadfile(HERE .. "commands.lua"))(settings, HERE)
local directives = dofile(HERE .. "directives.lua")
local json = dofile(HERE .. "json.lua")
local run, helper, flashwright = commands.run, commands.helper, commands.flashwright
local unpack = unpack or table.unpack

local RECORDS = settings.state .. "/records/"
local GRANULARITY_BYTES = 1024 * 1024
-- The answer for "not yet". Slurm 24.05 has a name for it, and asks again by itself.
local BUSY, SLURM_ASKS_AGAIN = "BUSY", slurm.SLURM_BB_BUSY ~= nil

-- Records

local function record_path(id)
	return RECORDS .. assert(tostring(id):match("^%d+$"), "a job has a number") .. ".json"
end

local function load_job(id)
	local text = commands.read_file(record_path(id))
	return text and json.decode(text)
end

local function create_record(job)
	commands.write_file(record_path(job.id), json.encode(job))
end

-- Does not bring back a record that teardown has removed meanwhile.
local function save_job(job)
	if load_job(job.id) then
		create_record(job)
	end
end

-- Pools

local LIST_POOLS = commands.line({ settings.flashwright, "stage", "pools", "list", "--json", "--config", settings.pools, "--state", settings.state })

local function known_pools()
	local text = commands.read_file(RECORDS .. "pools.json")
	return text and json.decode(text).pools
end

-- Looks at the pools now: for what runs outside slurmctld.
local function look_at_pools()
	local code, output, said = run(LIST_POOLS)
	if code ~= 0 then
		slurm.log_error("burst_buffer.lua: %s: %s", settings.pools, said)
		return nil, said
	end
	commands.write_file(RECORDS .. "pools.json", output)
	return json.decode(output).pools
end

local function pool_named(pools, name)
	for _, pool in ipairs(pools or {}) do
		if pool.name == name then
			return pool
		end
	end
end

-- refresh.sh looks at the pools, renews reservations, and marks the records of jobs that are over.
local function refresh_pools()
	local script = assert(commands.read_file(HERE .. "refresh.sh"))
	commands.leave_behind("cd " .. commands.quote(RECORDS) .. " && exec " .. commands.line({ "bash", "-c", script, "bash", LIST_POOLS }))
end

-- A reservation whose number is not known: setup was killed between the reservation and its record.
local function find_reservation(job)
	local pool = pool_named(look_at_pools(), job.pool)
	for _, row in ipairs(pool and pool.reservations or {}) do
		if row.label == "job-" .. job.id and row.owner == tonumber(job.uid) then
			return row.id
		end
	end
end

local function pools_verb(job, verb, ...)
	return { "pools", verb, "--config", settings.pools, "--state", commands.journal(job), ... }
end

-- Moves. Functions return true, or false and why not; those that may have to be asked again return nil for "not yet".

local function inner_path(job, name)
	return job.directory .. "/" .. directives.inner_name(name)
end

local function serve(job)
	local code, _, said = helper(job, "serve", settings.flashwright, unpack(settings.bwlimit and { "--bwlimit", settings.bwlimit } or {}))
	return code == 0, said
end

-- Hands a move in at the job's server, and adds its number to the list, unless it is done already.
local function hand_in(job, numbers, verb, from, to)
	-- A slow tier that is not mounted lacks the directories above a destination, so only those in the pool are made.
	local flags = { "--no-target-directory", "--idempotent", "--json", verb == "get" and "--parents" or nil }
	local code, output, said = flashwright(job, verb, from, to, unpack(flags))
	for _, move in ipairs(code == 0 and json.decode(output).jobs or {}) do
		numbers[#numbers + 1] = move.id
	end
	return code == 0, said
end

-- The moves of the job's server by their numbers; nil if it does not answer.
local function moves_of(job)
	-- The socket belongs to the user, who may have put another server there.
	local code, output = commands.run(commands.as_user(job, { "timeout", "20", settings.flashwright, "stage", "status", "--json" }))
	local moves = code == 0 and {} or nil
	for _, move in ipairs(moves and json.decode(output).jobs or {}) do
		moves[move.id] = move
	end
	return moves
end

-- Have these moves ended well? Then they are durable, but for a pool in memory: `stage mv` refuses a destination there.
local function have_ended(job, numbers)
	if #numbers == 0 then
		return true
	end
	local moves = moves_of(job)
	if not moves then
		-- The server has been killed, and its journal has the moves.
		local is_there, said = serve(job)
		if not is_there then
			return false, said
		end
		return nil
	end
	for _, number in ipairs(numbers) do
		local move = moves[number]
		if not move then
			return false, "move " .. number .. " is not in the job's journal"
		elseif move.state == "failed" or move.state == "cancelled" then
			return false, move.error and move.error.message or "cancelled"
		elseif move.state ~= "done" then
			return nil
		end
	end
	return true
end

local function watch(job, index, name, ...)
	local drain = job.drain[index]
	local words = { settings.flashwright, "stage", "watch", inner_path(job, drain.source), "--to", drain.destination, "--trigger=" .. drain.trigger, ... }
	words[#words + 1] = drain.keep and "--keep-fast=" .. drain.keep
	local code, _, said = helper(job, "begin", name .. index, unpack(words))
	return code == 0, said
end

-- Has the last round of this drain ended well? One that was killed is begun again.
local function has_drained(job, index)
	local code, output, said = helper(job, "code", "drain" .. index)
	if code ~= 0 then
		return false, said
	elseif output == "lost\n" then
		local has_begun, why = watch(job, index, "drain", "--once")
		if not has_begun then
			return false, why
		end
		return nil
	elseif output == "" then
		return nil
	elseif output ~= "0\n" then
		_, _, said = helper(job, "said", "drain" .. index)
		return false, "drain " .. job.drain[index].source .. ": " .. said
	end
	return true
end

-- Stages of a job

local function is_staged_in(job)
	local has_ended, why = have_ended(job, job.moves_in)
	if has_ended then
		helper(job, "finish", "server")
		job.phase = "staged in"
		save_job(job)
	end
	return has_ended, why
end

local function is_staged_out(job)
	for index in ipairs(job.drain) do
		local has_ended, why = has_drained(job, index)
		if not has_ended then
			return has_ended, why
		end
	end
	local has_ended, why = have_ended(job, job.moves_out)
	if has_ended then
		job.phase, job.is_durable = "durable", true
		save_job(job)
	end
	return has_ended, why
end

-- What would be lost with the job's directory; nil: nothing.
local function not_durable(job)
	local names = {}
	for _, move in ipairs(job.stage_out) do
		names[#names + 1] = inner_path(job, move.source)
	end
	for _, drain in ipairs(job.is_durable and {} or job.drain) do
		names[#names + 1] = inner_path(job, drain.source) .. "/"
	end
	local code, output, said = helper(job, "remains", unpack(names))
	return code ~= 0 and said or output:match("^[^\n]+")
end

local function forget(job)
	os.remove(RECORDS .. job.id .. ".renew")
	os.remove(RECORDS .. job.id .. ".over")
	os.remove(record_path(job.id))
	look_at_pools()
end

-- Ends the job's processes, and removes its directory, its reservation and its record, in an order in which it can be done again.
local function dismantle(job, is_hurried)
	local code, _, said = helper(job, "end")
	if code ~= 0 then
		return false, said
	end
	local lost = not is_hurried and not_durable(job)
	if lost then
		job.phase, job.kept = "kept", lost .. ": is not durable, and stays" .. (job.failed and "; " .. job.failed or "")
		save_job(job)
		os.remove(RECORDS .. job.id .. ".renew")
		return false, job.kept
	end
	local reservation = job.reservation or find_reservation(job)
	if reservation then
		flashwright(job, unpack(pools_verb(job, "release", reservation)))
	end
	code, _, said = helper(job, "remove", job.directory)
	if code == 0 then
		forget(job)
	end
	return code == 0, said
end

local function reserve(job, bytes)
	local words = pools_verb(job, "reserve", job.pool, "job-" .. job.id, "--size", bytes, "--wait", settings.wait, "--json")
	local code, output, said = flashwright(job, unpack(words))
	if code == 0 then
		job.reservation = json.decode(output).reservation.id
		save_job(job)
		local renew = commands.as_user(job, { settings.flashwright, "stage", unpack(pools_verb(job, "renew", job.reservation)) })
		commands.write_file(RECORDS .. job.id .. ".renew", renew .. "\n")
	end
	return code == 0, said
end

local function set_up(job, bytes)
	local earlier = load_job(job.id)
	if earlier then
		local is_gone, why = dismantle(earlier, false)
		if not is_gone then
			return false, "an earlier run of this job: " .. why
		end
	end
	local pool = pool_named(look_at_pools(), job.pool)
	if not pool then
		return false, "pool " .. job.pool .. ": is not there"
	end
	job.directory = pool.path .. "/" .. job.uid .. "/job-" .. job.id
	-- Before anything is made: teardown finds by the record what there may be.
	create_record(job)
	local code, _, said = helper(job, "open")
	if code ~= 0 then
		return false, said
	end
	local is_reserved, why = reserve(job, bytes)
	if not is_reserved then
		return false, why
	end
	local sources = {}
	for index, drain in ipairs(job.drain) do
		sources[index] = inner_path(job, drain.source)
		local _, output = helper(job, "there", drain.destination)
		if output == "" then
			return false, drain.destination .. ": is not there, or may not be seen"
		end
	end
	code, _, said = helper(job, "open", unpack(sources))
	return code == 0, said
end

local function stage_in(job)
	job.moves_in = {}
	local is_right, why = true, nil
	if #job.stage_in > 0 then
		is_right, why = serve(job)
	end
	for _, move in ipairs(job.stage_in) do
		if is_right then
			is_right, why = hand_in(job, job.moves_in, "get", move.source, inner_path(job, move.destination))
		end
	end
	return is_right, why
end

local function stage_out(job)
	job.moves_out = {}
	local is_right, why = true, nil
	if #job.stage_out + #job.drain > 0 then
		is_right, why = serve(job)
	end
	for index in ipairs(job.drain) do
		if is_right then
			is_right, why = watch(job, index, "drain", "--once")
		end
	end
	for _, move in ipairs(job.stage_out) do
		if is_right then
			is_right, why = hand_in(job, job.moves_out, "mv", inner_path(job, move.source), move.destination)
		end
	end
	return is_right, why
end

local function fail(id, why)
	local job = load_job(id)
	if job then
		job.failed = why
		save_job(job)
	end
	return slurm.ERROR, why
end

-- A function that Slurm calls with a job's number, of one that takes the job.
local function of_job(act)
	return function(id, ...)
		local job = load_job(id)
		if not job then
			return slurm.ERROR, "the job has no buffer"
		end
		return act(job, ...)
	end
end

-- Says whether a stage has ended.
local function answer(test)
	return of_job(function(job)
		local has_ended, why = test(job)
		if has_ended == false then
			return fail(job.id, why)
		end
		return slurm.SUCCESS, has_ended and "" or BUSY
	end)
end

-- Begins a stage, of which its test says whether it has ended. Slurm 24.05 calls the test; for older ones this waits for it.
local function stage(phase, begin, test)
	return of_job(function(job)
		job.phase = phase
		save_job(job)
		local has_begun, why = begin(job)
		save_job(job)
		if not has_begun then
			return fail(job.id, why)
		elseif SLURM_ASKS_AGAIN then
			return slurm.SUCCESS, ""
		end
		local code, said
		repeat
			os.execute("sleep " .. settings.poll)
			code, said = test(job.id)
		until said ~= BUSY
		return code, said
	end)
end

-- Has refresh.sh found that Slurm has done with this job? slurmctld cannot be asked here: it waits for the answer of get_status.
local function is_over(job)
	return run(commands.line({ "test", record_path(job.id), "-ef", RECORDS .. job.id .. ".over" })) == 0
end

local function line_of(job)
	local moves = (job.phase == "staging in" or job.phase == "staging out") and moves_of(job) or {}
	local verified, total = 0, 0
	for _, move in pairs(moves) do
		verified, total = verified + move.bytes_verified, total + move.bytes_total
	end
	local progress = total > 0 and string.format(": %.0f of %.0f bytes verified", verified, total) or ""
	return string.format("job %s uid %s pool %s: %s%s\n", job.id, job.uid, job.pool, job.failed and "failed" or job.phase, progress)
end

-- What Slurm calls

-- In slurmctld. Refuses what could not be carried out.
function slurm_bb_job_process(script)
	local request, why = directives.read_request(script)
	if not request then
		return slurm.ERROR, why
	end
	local pool = pool_named(known_pools(), request.pool)
	if pool and directives.bytes_of(request.capacity) > pool.quota then
		return slurm.ERROR, string.format("capacity=%s: pool %s has %.0f bytes in all", request.capacity, pool.name, pool.quota)
	end
	return slurm.SUCCESS
end

-- In slurmctld, every 30 s. At the very first start it has to wait for the pools; later it answers with what was seen last.
function slurm_bb_pools()
	local pools, why = known_pools(), nil
	if pools then
		refresh_pools()
	else
		pools, why = look_at_pools()
	end
	local parts = {}
	for index, pool in ipairs(pools or {}) do
		local quantity = math.floor(pool.quota / GRANULARITY_BYTES)
		local free = math.floor((math.min(pool.quota - pool.used, pool.free) - pool.reserved) / GRANULARITY_BYTES)
		parts[index] = json.encode({ id = pool.name, quantity = quantity, granularity = GRANULARITY_BYTES, free = math.max(0, math.min(quantity, free)) })
	end
	return pools and slurm.SUCCESS or slurm.ERROR, why or '{"pools":[' .. table.concat(parts, ",") .. "]}"
end

function slurm_bb_setup(id, uid, gid, pool, bytes, script)
	local job, why = directives.read_request(script)
	if not job then
		return slurm.ERROR, why
	end
	job.id, job.uid, job.gid, job.pool, job.phase = id, uid, gid, pool, "setting up"
	local is_set_up
	is_set_up, why = set_up(job, bytes)
	if not is_set_up then
		return fail(id, why)
	end
	return slurm.SUCCESS
end

slurm_bb_test_data_in = answer(is_staged_in)
slurm_bb_data_in = stage("staging in", stage_in, slurm_bb_test_data_in)

function slurm_bb_real_size()
	return slurm.SUCCESS
end

-- In slurmctld.
slurm_bb_paths = of_job(function(job, _, path_file)
	commands.write_file(path_file, "BB_JOB_DIR=" .. job.directory .. "\n")
	return slurm.SUCCESS
end)

slurm_bb_pre_run = of_job(function(job)
	job.phase = "running"
	save_job(job)
	local is_right, why = true, nil
	if #job.drain > 0 then
		is_right, why = serve(job)
	end
	for index, drain in ipairs(job.drain) do
		if is_right then
			is_right, why = watch(job, index, "watch", "--background", unpack(drain.bwlimit and { "--bwlimit", drain.bwlimit } or {}))
		end
	end
	if not is_right then
		return fail(job.id, why)
	end
	return slurm.SUCCESS
end)

slurm_bb_post_run = of_job(function(job)
	for index in ipairs(job.drain) do
		helper(job, "finish", "watch" .. index)
	end
	return slurm.SUCCESS
end)

slurm_bb_test_data_out = answer(is_staged_out)
slurm_bb_data_out = stage("staging out", stage_out, slurm_bb_test_data_out)

function slurm_bb_job_teardown(id, _, hurry)
	local job = load_job(id)
	if not job then
		return slurm.SUCCESS
	end
	local is_gone, why = dismantle(job, hurry == "true")
	return is_gone and slurm.SUCCESS or slurm.ERROR, why
end

-- Every user may ask, so no names of files are said. What was kept, or was left by a teardown that did not come to its end, goes once
-- nothing in it would be lost any more.
function slurm_bb_get_status()
	local _, names = run("ls " .. commands.quote(RECORDS))
	local lines = {}
	for id in names:gmatch("(%d+)%.json\n") do
		local job = load_job(id)
		if job and not ((job.kept or is_over(job)) and dismantle(job, false)) then
			-- What is read here is the user's: it is not to keep others from their lines.
			local is_line, line = pcall(line_of, job)
			lines[#lines + 1] = is_line and line or "job " .. id .. ": unknown\n"
		end
	end
	return slurm.SUCCESS, #lines > 0 and table.concat(lines) or "no job has a burst buffer\n"
end

-- An error of this file or of its state is a reason too: Slurm shows "(null)" for a function that fails without one.
local function told(is_right, ...)
	if is_right then
		return ...
	end
	slurm.log_error("burst_buffer.lua: %s", tostring((...)))
	return slurm.ERROR, tostring((...))
end

for name, act in pairs(_G) do
	if name:match("^slurm_bb_") then
		_G[name] = function(...)
			return told(pcall(act, ...))
		end
	end
end
