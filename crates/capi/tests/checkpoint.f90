! A checkpoint from Fortran: begin, write below the path, commit, wait. Arguments: fast, slow.
program checkpoint
  use, intrinsic :: iso_c_binding
  implicit none

  interface
    integer(c_int) function fw_open(fast, slow, options, store) bind(c)
      import :: c_int, c_char, c_ptr
      character(kind=c_char), intent(in) :: fast(*), slow(*), options(*)
      type(c_ptr), intent(out) :: store
    end function
    integer(c_int) function fw_begin(store, step) bind(c)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: store
      integer(c_int64_t), value :: step
    end function
    integer(c_int) function fw_path(store, step, buffer, size) bind(c)
      import :: c_int, c_char, c_ptr, c_int64_t, c_size_t
      type(c_ptr), value :: store
      integer(c_int64_t), value :: step
      character(kind=c_char), intent(out) :: buffer(*)
      integer(c_size_t), value :: size
    end function
    integer(c_int) function fw_commit(store, step) bind(c)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: store
      integer(c_int64_t), value :: step
    end function
    integer(c_int) function fw_wait(store, step, level, seconds) bind(c)
      import :: c_int, c_ptr, c_int64_t, c_double
      type(c_ptr), value :: store
      integer(c_int64_t), value :: step
      integer(c_int), value :: level
      real(c_double), value :: seconds
    end function
    integer(c_int) function fw_close(store) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: store
    end function
    integer(c_size_t) function fw_last_error(buffer, size) bind(c)
      import :: c_char, c_size_t
      character(kind=c_char), intent(out) :: buffer(*)
      integer(c_size_t), value :: size
    end function
  end interface

  integer(c_int), parameter :: fw_durable = 2
  type(c_ptr) :: store
  character(len=4096) :: fast, slow
  character(len=4096, kind=c_char) :: path
  integer(c_int64_t), parameter :: step = 7
  real(8) :: field(1000) = 1.5d0
  integer :: unit

  call get_command_argument(1, fast)
  call get_command_argument(2, slow)
  call check(fw_open(trim(fast)//c_null_char, trim(slow)//c_null_char, "keep_fast=1"//c_null_char, store))
  call check(fw_begin(store, step))
  call check(fw_path(store, step, path, len(path, c_size_t)))
  open (newunit=unit, file=path(1:index(path, c_null_char) - 1)//"/field.bin", form="unformatted", access="stream")
  write (unit) field
  close (unit)
  call check(fw_commit(store, step))
  call check(fw_wait(store, step, fw_durable, -1.0_c_double))
  call check(fw_close(store))
  print '(a)', "ok"

contains

  subroutine check(code)
    integer(c_int), intent(in) :: code
    character(len=1024, kind=c_char) :: message
    integer(c_size_t) :: length
    if (code == 0) return
    length = fw_last_error(message, len(message, c_size_t))
    print '(a)', message(1:min(length, len(message, c_size_t)))
    stop 1
  end subroutine
end program
